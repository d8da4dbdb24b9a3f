// Initial values over sizes, placements and schedules: the reference provider's bits. (On a GPU the logarithm, sine and
// cosine are the device library's: bits may differ there where the FP64 value lies on the border of a rounding.)
#include <vector>

#include "kernels/schedules.hpp"

namespace espalier::testing {
namespace {

class RandomSchedules : public ScheduleTest {};

TEST_P(RandomSchedules, NormalAndUniform) {
  const PhiloxKey key = make_key(3, RandomUse::initial_weight, 5);
  for_shapes([&](std::int64_t rows, std::int64_t cols, Placement placement) {
    for (const std::int64_t first : {std::int64_t{0}, (std::int64_t{1} << 40) + 7}) {
      const auto work = [&](Backend& backend) {
        Operand normal(backend, dtype(), rows, cols, placement), uniform(backend, dtype(), rows, cols, placement);
        backend.kernels().random->normal(normal, key, first, 0.1, 0.02, stream(backend));
        backend.kernels().random->uniform(uniform, key, first, -0.25, 0.75, stream(backend));
        std::vector<double> results = normal.read();
        return append(results, uniform);
      };
      expect_reference(work, Agreement::bits);
    }
  });
}

TEST_P(RandomSchedules, NothingToDo) {
  EmulatedBackend backend;
  Operand none(backend, dtype(), 0, 5);
  backend.kernels().random->normal(none, {1, 2}, 0, 0, 1, stream(backend));
  backend.kernels().random->uniform(none, {1, 2}, 0, 0, 1, stream(backend));
}

}  // namespace

INSTANTIATE_SCHEDULES(RandomSchedules);

}  // namespace espalier::testing
