"""The verb ``plan``: the bytes, memory and time that another verb would take."""
