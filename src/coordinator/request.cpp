// Copyright The Farandole Authors
// SPDX-License-Identifier: Apache-2.0
#include "coordinator/request.hpp"

#include <algorithm>
#include <bit>
#include <charconv>

namespace farandole::coordinator {
namespace {

bool own_first_dimension(Collective collective) {
  return collective == Collective::kAllgather || collective == Collective::kAlltoall;
}

bool same_shape(const TensorRequest& a, const TensorRequest& b) {
  if (a.shape.size() != b.shape.size()) return false;
  const std::ptrdiff_t skipped = own_first_dimension(a.collective) && !a.shape.empty() ? 1 : 0;
  return std::equal(a.shape.begin() + skipped, a.shape.end(), b.shape.begin() + skipped);
}

bool same_arithmetic(const TensorRequest& a, const TensorRequest& b) {
  if (!reduces(a.collective)) return true;
  if (a.adasum != b.adasum) return false;
  if (!a.adasum && a.reduction != b.reduction) return false;
  return same_scaling(a, b) && a.leaves_out_joined == b.leaves_out_joined;
}

std::string shortest(double value) {
  char text[32];
  return std::string(text, std::to_chars(text, text + sizeof text, value).ptr);
}

}  // namespace

bool same_scaling(const TensorRequest& a, const TensorRequest& b) {
  // Compares bits, so that a factor that is NaN agrees with itself.
  const auto same = [](double x, double y) {
    return std::bit_cast<std::uint64_t>(x) == std::bit_cast<std::uint64_t>(y);
  };
  return same(a.prescale, b.prescale) && same(a.postscale, b.postscale);
}

bool agree(const TensorRequest& a, const TensorRequest& b) {
  if (a.collective != b.collective || a.group_size != b.group_size || a.group != b.group) {
    return false;
  }
  if (a.collective == Collective::kBarrier) return true;
  return a.dtype == b.dtype && same_shape(a, b) && same_arithmetic(a, b) &&
         (!has_root(a.collective) || a.root == b.root) && (a.device < 0) == (b.device < 0);
}

std::string describe(const TensorRequest& request, const RankNames& names) {
  std::string text(name(request.collective));
  if (reduces(request.collective)) {
    text.append(" ").append(request.adasum ? "adasum" : name(request.reduction));
  }
  if (request.leaves_out_joined) text += " of ranks that have not joined";
  if (request.prescale != 1.0) text += " prescaled by " + shortest(request.prescale);
  if (request.postscale != 1.0) text += " postscaled by " + shortest(request.postscale);
  if (request.collective != Collective::kBarrier) {
    text.append(" ").append(name(request.dtype)).append("[");
    for (std::size_t i = 0; i < request.shape.size(); ++i) {
      text.append(i == 0 ? "" : ", ").append(std::to_string(request.shape[i]));
    }
    text.append("]");
    if (has_root(request.collective)) {
      text += " from rank " + std::to_string(name_of(request.root, names));
    }
    if (request.device >= 0) text += " on device " + std::to_string(request.device);
  }
  if (!request.group.empty()) {
    text += " in group '" + request.group + "' of " + std::to_string(request.group_size);
  }
  return text;
}

}  // namespace farandole::coordinator
