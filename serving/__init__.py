"""From a trained model to ranked answers.

`export` writes SavedModels that TensorFlow Serving runs as they are, `client` ranks through a
server, `dev_server` answers on a developer's machine, and `load_test` measures. Nothing is imported
here: the client stays free of Keras.
"""
