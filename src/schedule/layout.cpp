// Copyright The Farandole Authors
// SPDX-License-Identifier: Apache-2.0
#include "schedule/layout.hpp"

#include <algorithm>

namespace farandole {

Layout Layout::share(Count n, std::int64_t chunks, Bytes element) {
  constexpr std::size_t kLineBytes = 64;
  if (n.value() == 0 || chunks <= 0) return Layout{Count{0}, Count{0}};
  const std::size_t line = kLineBytes / element.value();
  const std::size_t each = (n.value() - 1) / static_cast<std::size_t>(chunks) + 1;
  return Layout{n, Count{((each - 1) / line + 1) * line}};
}

Layout Layout::repeat(Count n, std::int64_t chunks) {
  return Layout{Count{n.value() * static_cast<std::size_t>(chunks)}, n};
}

Layout Layout::by_counts(std::span<const std::size_t> counts) {
  Layout layout(Count{0}, Count{0});
  layout.offsets_.push_back(0);
  for (const std::size_t count : counts) {
    layout.total_ += Count{count};
    layout.chunk_ = std::max(layout.chunk_, Count{count});
    layout.offsets_.push_back(layout.total_.value());
  }
  return layout;
}

}  // namespace farandole
