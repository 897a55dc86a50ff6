"""The verb plan: what another verb would take."""
