"""Models of Hugging Face: from `config.json` to a decoder, one row of a table per `model_type`.

Facts come from the configuration and modelling files of `transformers`;
`tests/specs/hugging_face/test_transformers.py` compares parameter counts with it.
"""
