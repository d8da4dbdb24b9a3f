# What the plugin is made of, for both builds: by nvcc (CMakeLists.txt here) and for the emulator (tests/cuda_emulation).
set(kernels_fused_cuda_kernels
    src/attention.cpp
    src/elementwise.cu
    src/embedding.cu
    src/loss.cu
    src/norm.cu
    src/random.cu
    src/softmax.cu
    src/update.cu)
set(kernels_fused_cuda_host)
