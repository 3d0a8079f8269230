"""``df.write`` and ``df.writeStream`` into a store, exactly once.

Tasks stage rows in files; a commit appends them to the store or replaces it.  Uses
``rmqstore.spark.common``.
"""
