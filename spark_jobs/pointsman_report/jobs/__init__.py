"""What a run does, a stage after another; `days` computes and reports, `pipeline` computes."""
