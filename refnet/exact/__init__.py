"""Number types that make the nets' own source its proof."""
