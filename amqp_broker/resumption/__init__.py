"""Links that are resumed (2.6.3, 2.6.13): a terminus that outlives its link, with what is unsettled there."""
