"""From a trained model to ranked answers: export, local server, client.

`export` writes SavedModels that TensorFlow Serving runs as they are, `server` answers for them on a
developer's machine, `client` asks either of the two. Nothing is imported here: the client is meant
to stay free of Keras.
"""
