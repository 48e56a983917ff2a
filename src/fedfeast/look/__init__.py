"""How results look in a browser: one stylesheet and one file of charts for the server's page and for reports."""
