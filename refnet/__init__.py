"""refnet: exact gradients of orthogonal recurrent and deep feedforward nets."""
