// Copyright The Farandole Authors
// SPDX-License-Identifier: Apache-2.0
#include "schedule/verify/symmetry.hpp"

#include <algorithm>

namespace farandole {
namespace {

// Whether [0, extent) has whole digits at each stride, and no two of the digits overlap.
bool digits_fit(const std::vector<Rotation>& rotations, std::int64_t Rotation::* stride,
                std::int64_t extent) {
  for (const Rotation& a : rotations) {
    const std::int64_t low = a.*stride;
    if (low == 0) continue;
    if (low < 0 || low > extent / a.size || extent % (low * a.size) != 0) return false;
    for (const Rotation& b : rotations) {
      const std::int64_t other = b.*stride;
      if (&a == &b || other == 0) continue;
      const bool above = other % (low * a.size) == 0;
      const bool below = other <= low / b.size && low % (other * b.size) == 0;
      if (!above && !below) return false;
    }
  }
  return true;
}

}  // namespace

bool Symmetry::well_formed(const Schedule& header) {
  for (const Rotation& rotation : header.rotations) {
    if (rotation.size < 2 || rotation.rank_stride < 1) return false;
  }
  return digits_fit(header.rotations, &Rotation::rank_stride, header.rank_count) &&
         digits_fit(header.rotations, &Rotation::chunk_stride, header.chunk_count) &&
         digits_fit(header.rotations, &Rotation::scratch_stride, header.scratch_slots);
}

Symmetry::Symmetry(const Schedule& header) : rotations_(header.rotations) {
  for (const Rotation& rotation : rotations_) order_ *= rotation.size;
  representatives_.reserve(static_cast<std::size_t>(header.rank_count / order_));
  representatives_ = {0};
  // Digits that no rotation turns, from the least significant on.
  std::vector<Rotation> sorted = rotations_;
  std::sort(sorted.begin(), sorted.end(),
            [](const Rotation& a, const Rotation& b) { return a.rank_stride < b.rank_stride; });
  sorted.push_back({1, header.rank_count, 0, 0});
  std::int64_t stride = 1;
  for (const Rotation& rotation : sorted) {
    const std::size_t known = representatives_.size();
    for (std::int64_t digit = stride; digit < rotation.rank_stride; digit += stride) {
      for (std::size_t i = 0; i < known; ++i)
        representatives_.push_back(representatives_[i] + digit);
    }
    stride = rotation.rank_stride * rotation.size;
  }
}

Symmetry::Point Symmetry::place(std::int64_t rank) const {
  if (order_ == 1) return {rank, 0};
  Element element = 0, weight = 1;
  for (const Rotation& rotation : rotations_) {
    const std::int64_t digit = rank / rotation.rank_stride % rotation.size;
    rank -= digit * rotation.rank_stride;
    element += digit * weight;
    weight *= rotation.size;
  }
  const auto at = std::lower_bound(representatives_.begin(), representatives_.end(), rank);
  return {at - representatives_.begin(), element};
}

std::int64_t Symmetry::rank(Point place) const {
  std::int64_t rank = representative(place.orbit);
  for (const Rotation& rotation : rotations_) {
    rank += place.element % rotation.size * rotation.rank_stride;
    place.element /= rotation.size;
  }
  return rank;
}

Symmetry::Element Symmetry::sum(Element a, Element b) const {
  Element result = 0, weight = 1;
  for (const Rotation& rotation : rotations_) {
    result += (a + b) % rotation.size * weight;
    weight *= rotation.size;
    a /= rotation.size;
    b /= rotation.size;
  }
  return result;
}

Symmetry::Element Symmetry::difference(Element a, Element b) const {
  Element result = 0, weight = 1;
  for (const Rotation& rotation : rotations_) {
    const Element digit = a % rotation.size - b % rotation.size;
    result += (digit < 0 ? digit + rotation.size : digit) * weight;
    weight *= rotation.size;
    a /= rotation.size;
    b /= rotation.size;
  }
  return result;
}

std::int64_t Symmetry::turn(std::int64_t index, const Strides& strides, Element element) const {
  for (std::size_t i = 0; i < rotations_.size(); ++i) {
    const std::int64_t size = rotations_[i].size, by = element % size;
    element /= size;
    if (by == 0 || strides[i] == 0) continue;
    const std::int64_t digit = index / strides[i] % size;
    index += ((digit + by) % size - digit) * strides[i];
  }
  return index;
}

std::int64_t Symmetry::turn_span(std::int64_t first, std::int64_t count, const Strides& strides,
                                 Element element) const {
  Strides turning = strides;
  for (std::size_t i = 0; i < rotations_.size(); ++i) {
    const std::int64_t turn = strides[i] * rotations_[i].size;
    if (turn > 0 && first % turn == 0 && count % turn == 0) turning[i] = 0;
  }
  return turn(first, turning, element);
}

std::vector<Symmetry::Element> Symmetry::generators() const {
  std::vector<Element> result;
  Element weight = 1;
  for (const Rotation& rotation : rotations_) {
    result.push_back(weight);
    weight *= rotation.size;
  }
  return result;
}

std::int64_t Symmetry::run_length(std::int64_t index, std::int64_t count, const Strides& strides,
                                  Element element) const {
  for (std::size_t i = 0; i < rotations_.size(); ++i) {
    const std::int64_t by = element % rotations_[i].size;
    element /= rotations_[i].size;
    if (by == 0 || strides[i] == 0) continue;
    count = std::min(count, strides[i] - index % strides[i]);
  }
  return count;
}

Symmetry::Strides Symmetry::strides(std::int64_t Rotation::* which) const {
  Strides result;
  for (const Rotation& rotation : rotations_) result.push_back(rotation.*which);
  return result;
}

}  // namespace farandole
