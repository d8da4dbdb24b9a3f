#pragma once

// The one CUDA include of kernel sources. nvcc sees CUDA; the host compiler sees the emulator of tests/cuda_emulation,
// which runs the same text on the CPU. Four things are written otherwise than in plain CUDA:
//   SMEM_ARRAY(T, name, N)        a static shared array; N is a constant
//   SMEM_DYN(T, name)             the dynamic shared memory as elements of T, one T a kernel
//   ALIGNED_ACCESS(V, pointer)    an lvalue of the vector type V (16 bytes at most) at an address that is a multiple of its size
//   ALIGNED_STORE(V, pointer, v)  the same for writing, in one instruction: nvcc cuts an assignment of values that it has in single
//                                 registers into as many stores
// and launches go through launch() of launch.cuh. Helpers that are given shared memory take its type as a template
// parameter.
#ifdef __CUDACC__

#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_runtime.h>

#define SMEM_ARRAY(T, name, N) __shared__ T name[N]
#define SMEM_DYN(T, name)                                                  \
  extern __shared__ __align__(16) unsigned char espalier_dynamic_shared[]; \
  T* const name = reinterpret_cast<T*>(espalier_dynamic_shared)
#define ALIGNED_ACCESS(V, pointer) (*reinterpret_cast<V*>(pointer))
#define ALIGNED_STORE(V, pointer, value) __stwb(reinterpret_cast<V*>(pointer), value)

#else

#include <cuda_emulation/device_code.hpp>

#endif
