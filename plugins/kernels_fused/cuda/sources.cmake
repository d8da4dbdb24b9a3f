# What the plugin is made of, for both builds: by nvcc (CMakeLists.txt here) and for the emulator (tests/cuda_emulation).
set(kernels_fused_cuda_kernels
    src/elementwise.cu
    src/embedding.cu
    src/loss.cu
    src/norm.cu)
set(kernels_fused_cuda_host)
