"""Pure decisions of disaggregation: when to split, between whom, how long it will take."""
