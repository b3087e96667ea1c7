// Copyright The Farandole Authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "schedule/expand.hpp"
#include "schedule/verify/cells.hpp"
#include "schedule/verify/symmetry.hpp"

namespace farandole {

/// How the spans of one schedule look at the other ranks of an orbit.
class SpanTurns {
 public:
  SpanTurns(const Schedule& header, const Symmetry& symmetry);
  /// The span of a representative at the rank to which `element` takes the representative. A span
  /// whose chunks are permuted stays the same.
  ConcreteSpan turned(const ConcreteSpan& span, Symmetry::Element element) const;
  /// Turns runs read from `span` into those of that rank. Positions count from the start of the
  /// span.
  void turn(std::vector<Run>& runs, const ConcreteSpan& span, Symmetry::Element element) const;
  /// Turns runs of one buffer whose positions are indices.
  void turn(std::vector<Run>& runs, Buffer buffer, Symmetry::Element element) const;
  bool equally_long(const ConcreteSpan& source, Symmetry::Element element,
                    const ConcreteSpan& target) const;

 private:
  const Symmetry::Strides& strides_of(Buffer buffer) const {
    return strides_[static_cast<std::size_t>(buffer)];
  }
  bool differ_in_length_;
  const Symmetry& symmetry_;
  Symmetry::Strides strides_[3];             // by buffer
  Symmetry::Strides shape_;                  // of shapes
  std::vector<Symmetry::Strides> of_chunk_;  // at which the chunk number of a run turns
};

/// The ranks of which a rank knows that they have entered the barrier, one bit each.
using Knowledge = std::vector<std::uint64_t>;

/// What the representatives' memories hold, from the inputs to the promised results.
class Memories {
 public:
  Memories(const Schedule& header, const Symmetry& symmetry, Aliasing aliasing);

  /// Runs counted from the start of the span; false if a part of it is undefined.
  bool read(std::int64_t orbit, const ConcreteSpan& span, std::vector<Run>& runs) const;
  /// False if the proof has written more runs than it may.
  bool write(std::int64_t orbit, const ConcreteSpan& span, const std::vector<Run>& runs);
  Value reduce(Value left, Value right) { return values_.reduce(left, right); }
  bool too_many(Value a, Value b) const {
    return values_.contributions(a) + values_.contributions(b) > header_.rank_count;
  }

  bool of_all_ranks(Value value) const {
    return values_.contributions(value) == header_.rank_count;
  }

  const Knowledge& knowledge(std::size_t orbit) const { return knowledge_[orbit]; }
  void learn(std::size_t orbit, const Knowledge& learned) { learn(knowledge_[orbit], learned, 0); }
  void learn(Knowledge& into, const Knowledge& from, Symmetry::Element turn) const;

  /// Why the representative does not end with what the collective promises; none if it does.
  std::optional<std::string> broken_promise(std::int64_t orbit);
  std::string text(const Run& run) const;

 private:
  void place_inputs();
  std::optional<std::string> wrong_result(std::int64_t orbit);
  bool is_promised(const Run& run, std::int64_t rank);
  bool differs_between_ranks(const std::vector<Run>& out);

  const Schedule& header_;
  const Symmetry& symmetry_;
  const CellMap map_;
  const SpanTurns turns_;
  ValueTable values_;
  std::vector<Cells> cells_;  // [orbit]
  std::int64_t writes_left_;
  std::vector<Run> first_out_;        // of rank 0, once it was compared
  std::vector<Knowledge> knowledge_;  // [orbit]; barriers only
};

}  // namespace farandole
