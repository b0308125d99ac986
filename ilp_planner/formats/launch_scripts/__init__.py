"""Reading of launch scripts: a static reader of bash; it runs nothing."""
