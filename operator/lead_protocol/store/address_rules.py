"""What the address of an S3 store may look like, wherever it is typed: pods, operator and the chart ask the same.

Each is the text of a regular expression for the whole of a value.
"""

ENDPOINT = r"([A-Za-z0-9]([A-Za-z0-9.-]*[A-Za-z0-9])?|\[[0-9A-Fa-f:]+\])(:[0-9]{1,5})?"
BUCKET = r"[a-z0-9][a-z0-9.-]{1,61}[a-z0-9]"
