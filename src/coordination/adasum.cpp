// Copyright The Farandole Authors
// SPDX-License-Identifier: Apache-2.0
#include "coordination/adasum.hpp"

#include <bit>
#include <vector>

namespace farandole {
namespace {

template <class Real>
constexpr DType kReal = sizeof(Real) == 4 ? DType::kFloat32 : DType::kFloat64;

/// `into` becomes the combination of `low` and `high`, which are the same on both ranks that
/// combine.
template <class Real>
void combine(std::span<Real> into, std::span<const Real> low, std::span<const Real> high) {
  double dot = 0, low_norm = 0, high_norm = 0;
  for (std::size_t i = 0; i < low.size(); ++i) {
    const double a = low[i], b = high[i];
    dot += a * b;
    low_norm += a * a;
    high_norm += b * b;
  }
  const auto share = [&](double norm) { return norm > 0 ? 1 - dot / (2 * norm) : 1.0; };
  const auto low_share = static_cast<Real>(share(low_norm));
  const auto high_share = static_cast<Real>(share(high_norm));
  for (std::size_t i = 0; i < into.size(); ++i) {
    into[i] = low_share * low[i] + high_share * high[i];
  }
}

template <class Real>
Result<void> sum(Communicator& communicator, std::span<Real> values, const std::string& name) {
  const int self = communicator.rank().value(), size = communicator.size();
  const int core = static_cast<int>(std::bit_floor(static_cast<unsigned>(size)));
  const CallOptions options{.name = name};
  const Count count{values.size()};
  const auto send = [&](int rank) {
    return Message::send(values.data(), count, kReal<Real>, Rank{rank});
  };
  const auto receive = [&](std::span<Real> into, int rank) {
    return Message::receive(into.data(), count, kReal<Real>, Rank{rank});
  };
  if (self >= core) {
    const Message to_core = send(self - core), back = receive(values, self - core);
    if (auto sent = communicator.batch({&to_core, 1}, options); !sent) return sent;
    return communicator.batch({&back, 1}, options);
  }
  std::vector<Real> theirs(values.size());
  if (self + core < size) {
    const Message message = receive(theirs, self + core);
    if (auto came = communicator.batch({&message, 1}, options); !came) return came;
    combine<Real>(values, values, theirs);
  }
  for (int distance = 1; distance < core; distance *= 2) {
    const int peer = self ^ distance;
    const Message messages[] = {send(peer), receive(theirs, peer)};
    if (auto exchanged = communicator.batch(messages, options); !exchanged) return exchanged;
    if (self < peer) {
      combine<Real>(values, values, theirs);
    } else {
      combine<Real>(values, theirs, values);
    }
  }
  if (self + core >= size) return {};
  const Message back = send(self + core);
  return communicator.batch({&back, 1}, options);
}

}  // namespace

Result<void> adasum(Communicator& communicator, std::span<float> values, const std::string& name) {
  return sum(communicator, values, name);
}

Result<void> adasum(Communicator& communicator, std::span<double> values, const std::string& name) {
  return sum(communicator, values, name);
}

}  // namespace farandole
