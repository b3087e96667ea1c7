// Copyright The Farandole Authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <vector>

#include "simulator/compiled_round.hpp"

namespace farandole {

/// Checks whether waves that were solved as if their messages ran together did so: messages that
/// share a link must begin and end together, and find the link idle.
///
/// Threads   one at a time.
class Occupancy {
 public:
  explicit Occupancy(const Network& network);
  /// `wave` has run. It must not move in memory until another one runs or it is retired.
  void occupy(Wave& wave);
  /// What ran last has gone on for `seconds`, in the same way. `drifts`: perhaps not exactly in the
  /// same way.
  void shift(double seconds, bool drifts);
  /// Adds up the bytes of a wave that does not run again.
  void retire(const Wave& wave);

  bool exact() const { return exact_; }
  const std::vector<double>& link_bytes() const { return link_bytes_; }

 private:
  bool groups_agree(Wave& wave, bool again);
  bool links_are_idle(const Wave& wave) const;
  void leave(const Wave& wave);

  bool exact_ = true;
  const Wave* last_ = nullptr;
  double last_shift_ = 0;           // of the ends of what ran last
  std::vector<double> busy_until_;  // [link], by waves before the last
  std::vector<double> link_bytes_;
  std::vector<double> begin_, end_;  // [group] of the wave at hand
};

}  // namespace farandole
