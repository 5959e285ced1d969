"""Pure decisions of disaggregation: when to split, which pair, what is sent to whom next, what follows a failure."""
