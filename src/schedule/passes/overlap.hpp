// Copyright The Farandole Authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <span>
#include <vector>

#include "farandole/result.hpp"
#include "schedule/passes/bound.hpp"

// What may run at the same time. A schedule proves that the actions of one round may; these passes
// allow more: receives that reduce into one place take turns piece by piece, a round begins
// together with the one that fills what it sends, a copy is made while its source is sent.
// check_overlaps() detects it if they allow too much.
namespace farandole {

/// Whether the two places share memory.
bool overlap(const BoundTerms& terms, const ByteSpan& a, const ByteSpan& b);
/// Whether they are the same bytes.
bool is_same(const BoundTerms& terms, const ByteSpan& a, const ByteSpan& b);
/// Whether a local action copies a place onto itself.
bool is_idle(const BoundTerms& terms, const BoundAction& action);
/// Whether `out` is so large that what is copied into it leaves the caches before it is used.
bool outgrows_caches(const BoundTerms& terms);

/// `action` is held until `before` is done. Lets it follow `before` piece by piece, or begin
/// together with it, if the result stays correct. `before_index` is the index of `before`.
void release(const BoundTerms& terms, const BoundAction& before, std::uint32_t before_index,
             BoundAction& action);

/// Merges `second`, whose actions come after those of `first`, into `first`, so that both begin
/// together; false if they must not.
bool join(const BoundTerms& terms, std::span<BoundAction> actions, BoundRound& first,
          const BoundRound& second);

/// Decides, once a round has all its actions, which copies ride which sends and in what order the
/// actions are posted: small sends, then receives and the copies that ride, then the rest.
void finish(const BoundTerms& terms, std::span<BoundAction> actions, BoundRound& round);

/// Checks that no two actions that may run at the same time touch the same memory, one of them
/// writing, unless one follows the other there piece by piece.
///
/// Errors    kInternal, naming the two actions.
Result<void> check_overlaps(const BoundTerms& terms, std::span<const BoundAction> actions,
                            std::span<const BoundRound> rounds);

}  // namespace farandole
