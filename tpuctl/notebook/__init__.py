"""The magics `%%tpu` and `%tpu` of Jupyter and IPython: `%load_ext tpuctl`."""
