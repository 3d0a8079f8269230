"""The toolbox's verbs beside the machine's own pace, and their memory."""
