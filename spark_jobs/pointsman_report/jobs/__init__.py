"""The stages of a run; `days` computes and reports, `pipeline` computes."""
