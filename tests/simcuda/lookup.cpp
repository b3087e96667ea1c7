// Copyright The Farandole Authors
// SPDX-License-Identifier: Apache-2.0
// How NVIDIA's own programs look functions up.
#include <dlfcn.h>

#include "simcuda/calls.hpp"

using namespace farandole::cuda;

/// The symbol in the latest version that this library has.
SIMCUDA_API cuGetProcAddress_v2(const char* symbol, void** function, int, std::uint64_t,
                                int* status) {
  static void* const self = [] {
    Dl_info info{};
    ::dladdr(reinterpret_cast<const void*>(&cuGetProcAddress_v2), &info);
    return ::dlopen(info.dli_fname, RTLD_NOW | RTLD_NOLOAD);
  }();
  *function = nullptr;
  for (const char* const version : {"_v2", ""}) {
    if (*function == nullptr) *function = ::dlsym(self, (symbol + std::string(version)).c_str());
  }
  constexpr int kFound = 0, kNoSymbol = 1;
  if (status != nullptr) *status = *function == nullptr ? kNoSymbol : kFound;
  return *function == nullptr ? kNotFound : kSuccess;
}

SIMCUDA_API cuGetProcAddress(const char* symbol, void** function, int version,
                             std::uint64_t flags) {
  return cuGetProcAddress_v2(symbol, function, version, flags, nullptr);
}

/// There are no private tables; NVRTC asks, and does not look whether there is this function.
SIMCUDA_API cuGetExportTable(const void** table, const void*) {
  ENTER(cuGetExportTable);
  *table = nullptr;
  return kNotFound;
}
