"""Admin requests: ``mqadmin``, the dashboard, the exporter.

Source: ``broker/processor/AdminBrokerProcessor.java``.
"""
