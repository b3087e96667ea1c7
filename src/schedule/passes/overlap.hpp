// Copyright The Farandole Authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <span>
#include <vector>

#include "farandole/result.hpp"
#include "schedule/passes/bound.hpp"

// What may run at the same time. A schedule proves that the actions of one round may; these passes
// let more of them: receives that reduce into one place take turns piece by piece, a round begins
// with the one that fills what it sends, a copy is made while its source is sent. check_overlaps()
// finds it when they allow too much.
namespace farandole {

/// Whether the two places share memory.
bool overlap(const BoundTerms& terms, const ByteSpan& a, const ByteSpan& b);
/// Whether they are the same bytes.
bool is_same(const BoundTerms& terms, const ByteSpan& a, const ByteSpan& b);
/// Whether a local action copies a place onto itself.
bool is_idle(const BoundTerms& terms, const BoundAction& action);
/// A copy into an `out` that leaves the caches before it is used.
bool outgrows_caches(const BoundTerms& terms);

/// Lets an action that waits for `before` follow it piece by piece, or begin with it, where both
/// stay right. `before_index` is that one's index.
void release(const BoundTerms& terms, const BoundAction& before, std::uint32_t before_index,
             BoundAction& action);

/// Lets `second`, whose actions follow those of `first`, begin with it; false if it must not.
bool join(const BoundTerms& terms, std::span<BoundAction> actions, BoundRound& first,
          const BoundRound& second);

/// Decides, once a round has all its actions, which copies ride which sends and in what order the
/// actions are posted: small sends, receives, everything else.
void finish(const BoundTerms& terms, std::span<BoundAction> actions, BoundRound& round);

/// Whether no two actions that may run at the same time touch the same memory, one of them writing,
/// unless one follows the other there piece by piece.
/// Errors    kInternal, naming the two actions.
Result<void> check_overlaps(const BoundTerms& terms, std::span<const BoundAction> actions,
                            std::span<const BoundRound> rounds);

}  // namespace farandole
