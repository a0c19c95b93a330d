"""The input pipeline of a job, compared with one as in tutorials."""
