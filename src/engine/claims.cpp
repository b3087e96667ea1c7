// Copyright The Farandole Authors
// SPDX-License-Identifier: Apache-2.0
#include "engine/claims.hpp"

#include <algorithm>
#include <cmath>

#include "bootstrap/wire.hpp"
#include "transport/signature.hpp"

namespace farandole {
namespace {

constexpr std::uint8_t kClaims = 1;
constexpr std::uint8_t kDisagreement = 2;
constexpr std::size_t kExcuseMax = 400;
constexpr std::int32_t kNobody = -1;
// Each further period of this length doubles the number of ranks that have made their claims.
constexpr double kStaggerNs = 25e6;

void write(Writer& writer, OperationId id) {
  writer.u32(id.communicator).u32(id.sequence);
}

OperationId read_id(Reader& reader) {
  const std::uint32_t communicator = reader.u32();
  return {communicator, reader.u32()};
}

}  // namespace

std::string encode(std::span<const Claim> claims) {
  Writer writer;
  writer.u8(kClaims);
  for (const Claim& claim : claims) {
    write(writer, claim.id);
    writer.i32(claim.first.value()).i32(claim.from.value());
    write(writer, claim.signature);
  }
  return std::move(writer).bytes();
}

std::optional<std::vector<Claim>> decode_claims(std::string_view message) {
  Reader reader(message);
  if (reader.u8() != kClaims) return std::nullopt;
  std::vector<Claim> claims;
  while (reader.ok() && reader.left() > 0) {
    Claim claim;
    claim.id = read_id(reader);
    claim.first = Rank{reader.rank()};
    claim.from = Rank{reader.rank()};
    claim.signature = read_signature(reader);
    claims.push_back(claim);
  }
  return reader.complete() ? std::optional(std::move(claims)) : std::nullopt;
}

std::string encode(const Disagreement& disagreement) {
  Writer writer;
  writer.u8(kDisagreement);
  write(writer, disagreement.id);
  writer.i32(disagreement.first.value());
  writer.i32(disagreement.reporter.value()).i32(disagreement.other.value());
  write(writer, disagreement.reported);
  write(writer, disagreement.seen);
  writer.u64(disagreement.reported_bytes).u64(disagreement.seen_bytes);
  writer.text(disagreement.excuse.substr(0, kExcuseMax));
  writer.i32(disagreement.lost ? disagreement.lost->value() : kNobody);
  return std::move(writer).bytes();
}

std::optional<Disagreement> decode_disagreement(std::string_view message) {
  Reader reader(message);
  if (reader.u8() != kDisagreement) return std::nullopt;
  Disagreement disagreement;
  disagreement.id = read_id(reader);
  disagreement.first = Rank{reader.rank()};
  disagreement.reporter = Rank{reader.rank()};
  disagreement.other = Rank{reader.rank()};
  disagreement.reported = read_signature(reader);
  disagreement.seen = read_signature(reader);
  disagreement.reported_bytes = reader.u64();
  disagreement.seen_bytes = reader.u64();
  disagreement.excuse = reader.text();
  const std::int32_t lost = reader.i32();
  reader.require(lost >= kNobody);
  if (lost != kNobody) disagreement.lost = Rank{lost};
  return reader.complete() ? std::optional(std::move(disagreement)) : std::nullopt;
}

void Progress::remove(std::uint32_t communicator) {
  const auto found = current_.find(communicator);
  if (found == current_.end()) return;
  if (freed_.size() == kFreedMax) freed_.pop_front();
  const auto& [first, next] = found->second;
  freed_.push_back({communicator, first, next->load(std::memory_order_relaxed)});
  current_.erase(found);
}

bool Progress::freed_before(OperationId id, Rank first) const {
  return std::ranges::any_of(freed_, [&](const Freed& freed) {
    return freed.communicator == id.communicator && freed.first == first &&
           freed.next <= id.sequence;
  });
}

std::chrono::nanoseconds claims_after(OperationId id, Rank self, int size,
                                      std::chrono::nanoseconds patience) {
  // Multiplying by a prime separates neighbours, which are often late together.
  const std::uint64_t spread = (static_cast<std::uint64_t>(self.value()) + 1) * 2654435761;
  const std::uint64_t place = (spread + id.sequence) % static_cast<std::uint64_t>(size);
  const double longer = kStaggerNs * std::log2(static_cast<double>(place) + 1);
  return patience + std::chrono::nanoseconds(static_cast<std::int64_t>(longer));
}

}  // namespace farandole
