# Copyright The Farandole Authors
# SPDX-License-Identifier: Apache-2.0
# The kernels are compiled once per instruction set; reduce.cpp picks one at run time.
#
# -O3 in every build type: they rely on the compiler's vectorizer. No contraction into fused
# multiply-add, so that all variants give the same bits. Nobody reads the floating-point
# exception flags, and with -fno-trapping-math a comparison may become a blend.
set(kernel_options -O3 -ffp-contract=off -fno-trapping-math)
set(avx2_options -mavx2 -mf16c)
set(avx512_options ${avx2_options} -mavx512f -mavx512bw -mavx512dq -mavx512vl
  -mprefer-vector-width=512)

foreach(variant baseline avx2 avx512)
  set_source_files_properties(src/reduce/cpu/variant_${variant}.cpp PROPERTIES
    COMPILE_OPTIONS "${kernel_options};${${variant}_options}")
endforeach()
if(NOT CMAKE_SYSTEM_PROCESSOR MATCHES "^(x86_64|AMD64)$")
  set_source_files_properties(src/reduce/cpu/variant_avx2.cpp src/reduce/cpu/variant_avx512.cpp
    PROPERTIES HEADER_FILE_ONLY ON)
endif()
