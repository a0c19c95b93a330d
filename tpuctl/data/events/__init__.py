"""Reads the event files of TensorBoard, without TensorFlow."""
