// Copyright The Farandole Authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <nanobind/nanobind.h>

#include <algorithm>
#include <cstddef>
#include <optional>
#include <string_view>

#include "farandole/types.hpp"

namespace farandole::bindings {

/// A contiguous array as the buffer protocol shows it, held for the lifetime of this object. A fast
/// path for most arrays; all others are left to Python's describe().
class PlainArray {
 public:
  PlainArray(nanobind::handle array, bool writes) {
    const int flags = PyBUF_C_CONTIGUOUS | PyBUF_FORMAT | (writes ? PyBUF_WRITABLE : 0);
    open_ = PyObject_GetBuffer(array.ptr(), &view_, flags) == 0;
    if (!open_) PyErr_Clear();
  }
  PlainArray(const PlainArray&) = delete;
  PlainArray& operator=(const PlainArray&) = delete;
  ~PlainArray() {
    if (open_) PyBuffer_Release(&view_);
  }

  /// None if the array is not contiguous, read-only where it is to be written, not in this
  /// machine's byte order, or of a dtype that has no letter in the protocol.
  std::optional<DType> dtype() const {
    if (!open_) return std::nullopt;
    const std::string_view format = view_.format == nullptr ? "B" : view_.format;
    const auto letter = kLetters.find(format);
    if (format.size() != 1 || letter == kLetters.npos) return std::nullopt;
    return kDTypes[letter];
  }
  void* data() const { return view_.buf; }
  Count count() const { return Count{static_cast<std::size_t>(view_.len / view_.itemsize)}; }
  bool has_shape_of(const PlainArray& other) const {
    return view_.ndim == other.view_.ndim &&
           std::equal(view_.shape, view_.shape + view_.ndim, other.view_.shape);
  }

 private:
  static_assert(sizeof(long) == 8 && sizeof(long long) == 8);
  static constexpr std::string_view kLetters = "?bhilqBHILQefd";
  static constexpr DType kDTypes[] = {
      DType::kBool,   DType::kInt8,    DType::kInt16,   DType::kInt32,  DType::kInt64,
      DType::kInt64,  DType::kUInt8,   DType::kUInt16,  DType::kUInt32, DType::kUInt64,
      DType::kUInt64, DType::kFloat16, DType::kFloat32, DType::kFloat64};

  Py_buffer view_{};
  bool open_ = false;
};

}  // namespace farandole::bindings
