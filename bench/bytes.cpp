// Bytes that ranks send in a step, counted, beside the formulas of tests/support/traffic.hpp, as a table.
//   mpiexec -n 8 build/bench/bytes
#include <cstdio>
#include <sstream>

#include "support/traffic_run.hpp"

int main() {
  using namespace espalier;
  using namespace espalier::testing_support;
  const auto world = make_world_communicator();
  const std::vector<TrafficCase> cases = traffic_cases();
  std::vector<int> ranks;
  for (const TrafficCase& at : cases) {
    ranks.push_back(at.ranks());
    if (at.ranks() <= world->size()) continue;
    if (world->rank() == 0) std::fprintf(stderr, "mpiexec -n %d build/bench/bytes\n", at.ranks());
    return 2;
  }
  // Two numbers a quantity and case: of the busiest rank, and the most that any rank is off.
  constexpr std::size_t kQuantities = 4;
  std::vector<double> sent(cases.size() * kQuantities), off(sent.size());
  run_packed(*world, ranks, [&](Communicator& group, std::size_t i) {
    const auto lines = count_step(group, cases[i]);
    for (std::size_t q = 0; q < kQuantities; ++q) {
      sent[i * kQuantities + q] = static_cast<double>(lines[q].counted);
      off[i * kQuantities + q] = static_cast<double>(std::abs(lines[q].counted - lines[q].formula));
    }
  });
  class HostStream final : public Stream {
  } stream;
  for (std::vector<double>* numbers : {&sent, &off}) {
    const View view = View::vector(numbers->data(), std::ssize(*numbers), DType::f64);
    world->run({Verb::all_reduce, view, view, Reduce::max, 0, 0}, stream);
  }
  double worst = 0;
  for (const double difference : off) worst = std::max(worst, difference);
  if (world->rank() == 0) {
    std::printf("| layout | tensor | pipeline | data | world | off |\n| --- | ---: | ---: | ---: | ---: | ---: |\n");
    for (std::size_t i = 0; i < cases.size(); ++i) {
      std::ostringstream name;
      name << cases[i];
      const double* row = sent.data() + i * kQuantities;
      double difference = 0;
      for (std::size_t q = 0; q < kQuantities; ++q) difference = std::max(difference, off[i * kQuantities + q]);
      std::printf("| %s | %.0f | %.0f | %.0f | %.0f | %.0f |\n", name.str().c_str(), row[0], row[1], row[2], row[3],
                  difference);
    }
  }
  return worst == 0 ? 0 : 1;
}
