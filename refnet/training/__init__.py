"""From a configuration to a trained net: optimizers, one step, the loop around it."""
