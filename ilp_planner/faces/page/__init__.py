"""A saved plan as one HTML page that fetches nothing, and as a picture."""
