#pragma once

#include <cstddef>  // defines the library macros below

#include "espalier/build_id.hpp"

/// Build family and header hash: what must be equal on both sides of a plugin's border. The compiler's name is not part of it:
/// GCC and Clang with libstdc++ are one family. The hash leaves comments and white space out.
#define ESPALIER_ABI_MAJOR 1
#define ESPALIER_ABI_MINOR 0

#define ESPALIER_STRINGIFY_(x) #x
#define ESPALIER_STRINGIFY(x) ESPALIER_STRINGIFY_(x)

#if defined(__GLIBCXX__)
#define ESPALIER_ABI_LIBRARY "libstdc++ cxx11=" ESPALIER_STRINGIFY(_GLIBCXX_USE_CXX11_ABI)
#elif defined(_LIBCPP_VERSION)
#define ESPALIER_ABI_LIBRARY "libc++ " ESPALIER_STRINGIFY(_LIBCPP_ABI_VERSION)
#else
#define ESPALIER_ABI_LIBRARY "unknown library"
#endif

#if defined(_GLIBCXX_DEBUG)
#define ESPALIER_ABI_CONTAINERS " debug-containers"
#else
#define ESPALIER_ABI_CONTAINERS ""
#endif

#if defined(__SANITIZE_ADDRESS__)
#define ESPALIER_ABI_SANITIZER " asan"
#elif defined(__SANITIZE_THREAD__)
#define ESPALIER_ABI_SANITIZER " tsan"
#else
#define ESPALIER_ABI_SANITIZER ""
#endif

/// Readable part and hash: "1.0 itanium libstdc++ cxx11=1 headers=0f3a…".
#define ESPALIER_ABI_ID                                                                                               \
  ESPALIER_STRINGIFY(ESPALIER_ABI_MAJOR)                                                                              \
  "." ESPALIER_STRINGIFY(ESPALIER_ABI_MINOR) " itanium " ESPALIER_ABI_LIBRARY ESPALIER_ABI_CONTAINERS                 \
      ESPALIER_ABI_SANITIZER " headers=" ESPALIER_HEADER_HASH
