// Copyright The Farandole Authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/clock.hpp"
#include "coordination/submission.hpp"
#include "coordinator/fusion.hpp"
#include "farandole/farandole.hpp"

namespace farandole {

/// A batch in flight: what it moves, and where the results go.
struct Flight {
  std::vector<coordinator::Ready> members;
  std::vector<SharedSubmission> tasks;  // by member; null where this rank did not ask
  std::optional<Request> request;
  std::shared_ptr<std::byte> buffer;  // of the batch; none if it runs in the caller's memory
  std::size_t buffer_bytes = 0;
  std::shared_ptr<std::byte> result;  // for the caller, where the library allocates it
  const std::byte* in = nullptr;
  std::byte* out = nullptr;
  Count count;
  Reduction reduction = Reduction::kSum;  // what the communicator does, unless it is Adasum
  std::size_t divisor = 1;                // of its result
  std::size_t wide_length = 0;            // not 0: it adds up integers that widen() made
  bool unpack = false;                    // from `out` to the tasks
  int size_shift = 0;                     // of CallOptions
  std::string name;
  Clock::time_point ready{}, packed{}, started{};  // packed: when copying into `buffer` began

  const coordinator::TensorRequest& terms() const { return *members.front().response.request; }
  /// Shape of this rank's input if the operation divides the first dimension.
  std::vector<std::int64_t> own_shape() const;
  /// Bytes of an element in the memory that is reduced.
  Bytes element_size() const;
  /// How many elements the communicator gets for `elements` of the caller's.
  Count moved(Count elements) const;
  /// Decides what the communicator does for a reduction. It computes a plain average itself; else
  /// the sum is divided and scaled here, in one step, so that it is rounded once.
  void choose_arithmetic(int rank_count);
  /// Copies a tensor to where it is reduced, scaled or widened if needed.
  void bring(std::byte* target, const void* source_data, Count elements) const;
  /// The start of all tensors, if they are reduced in place and lie one after the other; else null.
  std::byte* in_place_in_order() const;
  /// Completes a reduction: applies divisor and postscale, and copies the results to the caller.
  void complete();
};

}  // namespace farandole
