// Copyright The Farandole Authors
// SPDX-License-Identifier: Apache-2.0
#include "coordination/flight.hpp"

#include <algorithm>

#include "coordination/rows.hpp"
#include "device/cpu/copy.hpp"
#include "reduce/reduce.hpp"

namespace farandole {

std::vector<std::int64_t> Flight::own_shape() const {
  const SharedSubmission& task = tasks.front();
  return task ? task->call.shape : with_rows(terms().shape, 0);
}

Bytes Flight::element_size() const {
  if (wide_length == 0) return size_of(terms().dtype);
  return Count{wide_length} * size_of(DType::kInt64);
}

Count Flight::moved(Count elements) const {
  return Count{elements.value() * std::max<std::size_t>(1, wide_length)};
}

void Flight::choose_arithmetic(int rank_count) {
  const coordinator::TensorRequest& asked = terms();
  reduction = asked.reduction;
  if (!reduces(asked.collective) || asked.adasum || asked.reduction != Reduction::kAverage) return;
  const int left_out = asked.leaves_out_joined ? members.front().joined->count() : 0;
  wide_length = farandole::wide_length(asked.dtype);
  if (wide_length == 0 && left_out == 0 && asked.postscale == 1.0) return;
  reduction = Reduction::kSum;
  divisor = static_cast<std::size_t>(rank_count - left_out);
}

void Flight::bring(std::byte* target, const void* source_data, Count elements) const {
  const coordinator::TensorRequest& asked = terms();
  const auto* source = static_cast<const std::byte*>(source_data);
  if (elements.value() == 0) return;
  if (wide_length > 0) {
    widen(target, source, elements, asked.dtype, divisor, asked.prescale);
  } else if (asked.prescale != 1.0) {
    scale(target, source, elements, asked.dtype, asked.prescale);
  } else if (target != source) {
    copy_bytes(target, source, (elements * size_of(asked.dtype)).value());
  }
}

std::byte* Flight::in_place_in_order() const {
  std::byte *first = nullptr, *expected = nullptr;
  for (const SharedSubmission& task : tasks) {
    if (!task || task->call.in != task->call.out) return nullptr;
    const std::size_t bytes = size_in_bytes(task->call.shape, task->call.dtype).value();
    if (bytes == 0) continue;  // wherever it is, if anywhere
    auto* data = static_cast<std::byte*>(task->call.out);
    if (first == nullptr) {
      first = data;
    } else if (data != expected) {
      return nullptr;
    }
    expected = data + bytes;
  }
  return first;
}

void Flight::complete() {
  const coordinator::TensorRequest& asked = terms();
  const bool wide = wide_length > 0;
  if (!wide && asked.postscale != 1.0) {
    const double factor = asked.postscale / static_cast<double>(divisor);
    scale(out, out, count, asked.dtype, factor);
  } else if (!wide && divisor > 1) {
    divide(out, out, count, asked.dtype, divisor);
  }
  const auto hand_over = [&](void* target, const std::byte* from, Count elements) {
    auto* const to = static_cast<std::byte*>(target);
    if (wide) return narrow(to, from, elements, asked.dtype, divisor, asked.postscale);
    if (elements.value() > 0) copy_bytes(to, from, (elements * size_of(asked.dtype)).value());
  };
  if (wide && !unpack) hand_over(result.get(), out, count);
  const std::byte* at = out;
  for (std::size_t i = 0; i < members.size() && unpack; ++i) {
    const Count elements{element_count(members[i].response.request->shape)};
    if (tasks[i]) hand_over(tasks[i]->call.out, at, elements);
    at += (elements * element_size()).value();
  }
}

}  // namespace farandole
