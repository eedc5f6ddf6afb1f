"""What a recurrent matrix does to signals, gradients and memory."""
