"""Mutation testing of a change: which one-line mistakes do the tests let pass?"""
