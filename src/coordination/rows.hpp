// Copyright The Farandole Authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <numeric>
#include <vector>

#include "coordination/submission.hpp"
#include "farandole/types.hpp"

// How the first dimension of a tensor is divided among ranks.
namespace farandole {

inline Bytes size_in_bytes(const std::vector<std::int64_t>& shape, DType dtype) {
  return Count{element_count(shape)} * size_of(dtype);
}

inline std::vector<std::int64_t> with_rows(std::vector<std::int64_t> shape, std::int64_t rows) {
  if (shape.empty()) return {rows};
  shape.front() = rows;
  return shape;
}

/// Rows of each rank's part of a reducescatter: as even as possible, the first ones longer.
inline std::vector<std::int64_t> even_parts(std::int64_t rows, int rank_count) {
  std::vector<std::int64_t> parts(static_cast<std::size_t>(rank_count), rows / rank_count);
  for (std::int64_t rank = 0; rank < rows % rank_count; ++rank) ++parts[std::size_t(rank)];
  return parts;
}

/// Elements in each of these numbers of rows; a row has `row` elements.
inline std::vector<std::size_t> elements(const std::vector<std::int64_t>& rows, std::size_t row) {
  std::vector<std::size_t> counts;
  for (const std::int64_t count : rows) counts.push_back(static_cast<std::size_t>(count) * row);
  return counts;
}

inline std::int64_t total(const std::vector<std::int64_t>& rows) {
  return std::accumulate(rows.begin(), rows.end(), std::int64_t{0});
}

}  // namespace farandole
