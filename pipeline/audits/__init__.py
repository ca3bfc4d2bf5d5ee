"""The audits: functions from DataFrames of events to DataFrames of findings."""
