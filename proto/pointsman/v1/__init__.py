"""The wire: generated stubs of ``*.proto`` beside their sources. Made by ``make proto``; never edited."""
