// Copyright The Farandole Authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <vector>

#include "schedule/schedule.hpp"

namespace farandole {

/// The group that a schedule's rotations generate. A schedule that commutes with it does at every
/// rank of an orbit what it does at the orbit's representative, turned, so one rank per orbit
/// stands for all. Without rotations every rank is an orbit of its own.
///
/// Elements  numbers below order(), 0 is the identity: the digits by which each rotation turns.
/// Threads   immutable; share freely.
class Symmetry {
 public:
  using Element = std::int64_t;
  struct Point {
    std::int64_t orbit;
    Element element;  // takes the representative to the rank
    bool operator==(const Point&) const = default;
  };

  /// Whether the digits exist and do not overlap, in ranks, chunks and scratch.
  static bool well_formed(const Schedule& header);

  explicit Symmetry(const Schedule& header);  // well formed
  Element order() const { return order_; }
  std::int64_t orbit_count() const { return static_cast<std::int64_t>(representatives_.size()); }
  std::int64_t representative(std::int64_t orbit) const {
    return representatives_[static_cast<std::size_t>(orbit)];
  }
  Point place(std::int64_t rank) const;
  std::int64_t rank(Point place) const;
  Element sum(Element a, Element b) const;
  Element inverse(Element a) const { return difference(0, a); }
  Element difference(Element a, Element b) const;

  /// Strides at which each rotation turns an index; 0 where it does not.
  using Strides = std::vector<std::int64_t>;
  std::int64_t turn(std::int64_t index, const Strides& strides, Element element) const;
  /// Splits [index, index + count) into parts that stay contiguous when turned; calls body(offset,
  /// turned, count) for each.
  template <class Body>
  void turn_run(std::int64_t index, std::int64_t count, const Strides& strides, Element element,
                const Body& body) const;

  /// Where [first, first + count) starts once turned; a rotation of which it covers whole turns
  /// leaves it in place.
  std::int64_t turn_span(std::int64_t first, std::int64_t count, const Strides& strides,
                         Element element) const;
  /// One step of each rotation.
  std::vector<Element> generators() const;

  Strides of_chunks() const { return strides(&Rotation::chunk_stride); }
  Strides of_scratch() const { return strides(&Rotation::scratch_stride); }
  Strides of_ranks() const { return strides(&Rotation::rank_stride); }
  Strides of_nothing() const { return Strides(rotations_.size(), 0); }

 private:
  Strides strides(std::int64_t Rotation::* which) const;
  /// How many indices from `index` on, up to `count`, stay contiguous when turned.
  std::int64_t run_length(std::int64_t index, std::int64_t count, const Strides& strides,
                          Element element) const;

  std::vector<Rotation> rotations_;
  Element order_ = 1;
  std::vector<std::int64_t> representatives_;  // [orbit], ascending
};

template <class Body>
void Symmetry::turn_run(std::int64_t index, std::int64_t count, const Strides& strides,
                        Element element, const Body& body) const {
  for (std::int64_t done = 0; done < count;) {
    const std::int64_t length = run_length(index + done, count - done, strides, element);
    body(done, turn(index + done, strides, element), length);
    done += length;
  }
}

}  // namespace farandole
