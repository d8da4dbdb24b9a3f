# What the plugin is made of, for both builds: by nvcc (CMakeLists.txt here) and for the emulator (tests/cuda_emulation).
set(kernels_fused_cuda_kernels
    src/attention.cpp
    src/column_sum.cu
    src/elementwise.cu
    src/embedding.cu
    src/loss.cu
    src/norm.cu
    src/random.cu
    src/scratch.cpp
    src/softmax.cu
    src/update.cu)
set(kernels_fused_cuda_host
    src/device.cpp
    src/fused_cuda_backend.cpp
    src/gemm.cpp
    src/matrix.cpp
    src/staging.cpp)
