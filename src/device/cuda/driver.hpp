// Copyright The Farandole Authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <string_view>

#include "base/origin.hpp"
#include "device/cuda/api.hpp"
#include "farandole/result.hpp"

namespace farandole::cuda {

/// CUDA's driver, as it is found when the program runs: in FARANDOLE_CUDA_LIBRARY if that is set,
/// else in libcuda.so.1.
///
/// Threads   any.
/// Errors    load(): kUnsupported if there is no driver, it lacks a function, or has no device.
class Driver {
 public:
  /// The process's driver, loaded and initialized by the first call.
  static const Result<Driver>& instance();
  /// A driver from a file, for those who have several.
  static Result<Driver> load(const std::string& file);

  const Api& api() const { return api_; }
  int version() const { return version_; }  // 12040 for CUDA 12.4
  int device_count() const { return device_count_; }
  /// The driver cannot be used in a child forked after it was initialized.
  bool here() const { return origin_.here(); }
  Error forked_error(std::string_view call) const { return origin_.error(call); }

  /// "cuMemAlloc_v2: CUDA_ERROR_OUT_OF_MEMORY (out of memory)" as kInternal. Empty if `status` is
  /// kSuccess.
  Result<void> check(Status status, std::string_view call) const;

 private:
  Driver() = default;
  Result<void> find_functions(void* library, const std::string& file);

  Api api_;
  int version_ = 0;
  int device_count_ = 0;
  Origin origin_;
};

}  // namespace farandole::cuda
