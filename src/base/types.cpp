// Copyright The Farandole Authors
// SPDX-License-Identifier: Apache-2.0
#include "farandole/types.hpp"

#include <array>

namespace farandole {
namespace {

constexpr std::array<std::string_view, kDTypeCount> kDTypeNames = {
    "bool",    "int8",      "int16",      "int32",       "int64",      "uint8",
    "uint16",  "uint32",    "uint64",     "float16",     "bfloat16",   "float32",
    "float64", "complex64", "complex128", "float8_e4m3", "float8_e5m2"};
constexpr std::array<std::string_view, kReductionCount> kReductionNames = {
    "sum",        "product",     "min",         "max",        "average",     "logical_and",
    "logical_or", "logical_xor", "bitwise_and", "bitwise_or", "bitwise_xor", "premultiplied_sum"};
constexpr std::array<std::string_view, kCollectiveCount> kCollectiveNames = {
    "allreduce", "reduce",  "broadcast", "reducescatter", "allgather",
    "gather",    "scatter", "alltoall",  "barrier"};

template <class Enum, std::size_t n>
std::optional<Enum> parse(const std::array<std::string_view, n>& names, std::string_view text) {
  for (std::size_t i = 0; i < n; ++i) {
    if (names[i] == text) return static_cast<Enum>(i);
  }
  return std::nullopt;
}

}  // namespace

std::string_view name(DType dtype) {
  return kDTypeNames[static_cast<std::size_t>(dtype)];
}
std::string_view name(Reduction reduction) {
  return kReductionNames[static_cast<std::size_t>(reduction)];
}
std::string_view name(Collective collective) {
  return kCollectiveNames[static_cast<std::size_t>(collective)];
}
std::optional<DType> parse_dtype(std::string_view text) {
  return parse<DType>(kDTypeNames, text);
}
std::optional<Reduction> parse_reduction(std::string_view text) {
  return parse<Reduction>(kReductionNames, text);
}
std::optional<Collective> parse_collective(std::string_view text) {
  return parse<Collective>(kCollectiveNames, text);
}

}  // namespace farandole
