// Copyright The Farandole Authors
// SPDX-License-Identifier: Apache-2.0
#include "coordinator/fusion.hpp"

#include <algorithm>
#include <limits>
#include <optional>
#include <string_view>
#include <unordered_map>
#include <utility>

namespace farandole::coordinator {
namespace {

constexpr std::uint64_t kEndless = std::numeric_limits<std::uint64_t>::max();
// In host memory, from this size on, copies to a shared buffer and back take longer than a separate
// operation.
constexpr std::uint64_t kAloneBytesMin = std::uint64_t{1} << 20;

// Saturates, since a caller may give any shape.
std::uint64_t bytes_of(const TensorRequest& request) {
  std::uint64_t bytes = size_of(request.dtype).value();
  for (const std::int64_t size : request.shape) {
    if (__builtin_mul_overflow(bytes, static_cast<std::uint64_t>(size), &bytes)) return kEndless;
  }
  return bytes;
}

bool fusible(const Ready& ready) {
  const TensorRequest& request = *ready.response.request;
  return ready.response.error.empty() && request.collective == Collective::kAllreduce &&
         !request.adasum;
}

// Whether two fusible responses may share a buffer.
bool of_one_kind(const Ready& a, const Ready& b) {
  const TensorRequest& x = *a.response.request;
  const TensorRequest& y = *b.response.request;
  return x.dtype == y.dtype && x.reduction == y.reduction && x.device == y.device &&
         same_scaling(x, y) && x.leaves_out_joined == y.leaves_out_joined &&
         (a.joined == b.joined || *a.joined == *b.joined);
}

class Packer {
 public:
  explicit Packer(std::uint64_t threshold_bytes) : threshold_bytes_(threshold_bytes) {}

  void add(Ready ready) {
    if (!fusible(ready)) {
      close();
      batches_.push_back(single(std::move(ready)));
    } else if (ready.response.request->group.empty()) {
      add_alone(std::move(ready));
    } else {
      close();
      add_member(std::move(ready));
    }
  }
  std::vector<Batch> batches() && { return std::move(batches_); }

 private:
  static Batch single(Ready ready) {
    Batch batch;
    batch.members.push_back(std::move(ready));
    return batch;
  }

  void close() { open_.reset(); }

  // A small one joins the small ones before it, if they have room, even past a large one, which
  // stays alone.
  void add_alone(Ready ready) {
    const std::uint64_t bytes = bytes_of(*ready.response.request);
    const bool small = bytes < kAloneBytesMin || ready.response.request->device >= 0;
    if (small && open_ && bytes <= threshold_bytes_ - std::min(open_bytes_, threshold_bytes_) &&
        of_one_kind(batches_[*open_].members.front(), ready)) {
      open_bytes_ += bytes;
      batches_[*open_].members.push_back(std::move(ready));
      return;
    }
    if (small) {
      open_ = batches_.size();
      open_bytes_ = bytes;
    }
    batches_.push_back(single(std::move(ready)));
  }

  // Adds it to its group, wherever that began: the cache may hold the members far apart.
  void add_member(Ready ready) {
    const std::string& label = ready.response.request->group;
    std::vector<std::size_t>& places = places_[label];
    for (const std::size_t place : places) {
      if (!of_one_kind(batches_[place].members.front(), ready)) continue;
      batches_[place].members.push_back(std::move(ready));
      return;
    }
    places.push_back(batches_.size());
    batches_.push_back(single(std::move(ready)));
  }

  std::uint64_t threshold_bytes_;
  std::vector<Batch> batches_;
  std::optional<std::size_t> open_;  // the batch that takes more
  std::uint64_t open_bytes_ = 0;
  std::unordered_map<std::string_view, std::vector<std::size_t>> places_;  // batches of a group
};

}  // namespace

std::vector<Batch> fuse(std::vector<Ready> ready, std::uint64_t threshold_bytes) {
  Packer packer(threshold_bytes);
  for (Ready& one : ready) packer.add(std::move(one));
  return std::move(packer).batches();
}

}  // namespace farandole::coordinator
