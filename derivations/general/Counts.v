(* How many paths there are, in all and by order. *)

From mathcomp Require Import all_ssreflect all_algebra.
From Circuits Require Import Heads Paths.

Set Implicit Arguments.
Unset Strict Implicit.
Unset Printing Implicit Defensive.

(* The elementary symmetric polynomial e_k(H_1, ..., H_L), by the recursion that reads it off: a product of k of
   the numbers leaves the first out, or takes it and k - 1 of the others. *)
Fixpoint elementary k (Hs : seq nat) : nat :=
  match k, Hs with
  | 0, _ => 1
  | _.+1, [::] => 0
  | k'.+1, H :: rest => elementary k rest + H * elementary k' rest
  end.

Section Counts.

Variable R : comRingType.
Variables n d : nat.

Implicit Type layers : seq (seq (head R n d)).

(* The head counts H_1, ..., H_L. *)
Definition head_counts layers := [seq size heads | heads <- layers].

(* There are  (1 + H_1) ... (1 + H_L)  paths. *)
Theorem number_of_paths layers :
  size (paths layers) = \prod_(heads <- layers) (1 + size heads).
Proof.
elim: layers => [|heads rest IH] /=; first by rewrite big_nil.
by rewrite size_cat size_allpairs IH big_cons mulnDl mul1n.
Qed.

(* The order of a path is the number of heads that it takes. *)
Definition number_of_order k layers := count (fun p => size p == k) (paths layers).

(* There are e_k(H_1, ..., H_L) paths of order k. *)
Theorem number_of_paths_of_order layers k :
  number_of_order k layers = elementary k (head_counts layers).
Proof.
rewrite /number_of_order; elim: layers k => [|heads rest IH] k; first by case: k.
have through_a_head : count (fun p => size p == k) [seq h :: p | h <- heads, p <- paths rest]
                      = size heads * count (fun p => (size p).+1 == k) (paths rest).
  by elim: heads => //= h heads IHh; rewrite count_cat count_map IHh mulSn.
rewrite /= count_cat through_a_head IH.
case: k {through_a_head} => [|k] /=.
  by case: (head_counts rest) => [|? ?]; rewrite (eq_count (a2 := pred0)) ?count_pred0 ?muln0.
by congr (_ + _ * _); rewrite -IH.
Qed.

(* The score terms of a head after these layers: a path on each side. *)
Theorem number_of_score_terms layers :
  size [seq (p, q) | p <- paths layers, q <- paths layers]
  = (\prod_(heads <- layers) (1 + size heads)) ^ 2.
Proof. by rewrite size_allpairs number_of_paths mulnn. Qed.

End Counts.

(* Two layers of 12 heads: 1, 24 and 144 paths of order 0, 1 and 2. *)
Example twelve_and_twelve : [seq elementary k [:: 12; 12] | k <- iota 0 4] = [:: 1; 24; 144; 0].
Proof. by []. Qed.

(* L layers of H heads each: L choose k, times H^k. *)
Theorem elementary_uniform L H k : elementary k (nseq L H) = 'C(L, k) * H ^ k.
Proof.
elim: L k => [|L IH] [|k] //=.
by rewrite !IH binS mulnDl expnS; congr (_ + _); rewrite mulnCA.
Qed.

Section GeneratingPolynomial.

Import GRing.Theory.
Local Open Scope ring_scope.

(* e_k is the coefficient of z^k in  (1 + H_1 z) ... (1 + H_L z). *)
Theorem elementary_is_coefficient Hs k :
  (\prod_(H <- Hs) (1 + H%:R *: 'X) : {poly int})`_k = (elementary k Hs)%:R.
Proof.
elim: Hs k => [|H Hs IH] k; first by rewrite big_nil coef1; case: k.
rewrite big_cons mulrDl mul1r -scalerAl coefD coefZ coefXM !IH.
by case: k => [|k] /=; rewrite ?mulr0 ?addr0 ?natrD ?natrM //; case: (Hs).
Qed.

(* It is the sum, over the sets of k layers, of the product of their head counts. *)
Theorem elementary_is_sum_over_sets (Hs : seq nat) k :
  elementary k Hs
  = (\sum_(S : {set 'I_(size Hs)} | #|S| == k) \prod_(i in S) nth 0 Hs i)%N.
Proof.
apply/eqP; rewrite -(Num.Theory.eqr_nat [numDomainType of int]) -elementary_is_coefficient; apply/eqP.
rewrite (big_nth 0%N) big_mkord.
rewrite (eq_bigr (fun i : 'I__ => \sum_(b : bool) if b then (nth 0%N Hs i)%:R *: 'X else 1)); last first.
  by move=> i _; rewrite big_bool addrC.
rewrite bigA_distr_bigA coef_sum.
(* A choice for each layer is the set of the layers where a head is taken. *)
rewrite (reindex (fun S : {set 'I_(size Hs)} => [ffun i => i \in S])) /=; last first.
  apply: onW_bij; exists (fun f : {ffun 'I_(size Hs) -> bool} => [set i | f i]) => [S | f].
    by apply/setP => i; rewrite inE ffunE.
  by apply/ffunP => i; rewrite ffunE inE.
rewrite natr_sum [RHS]big_mkcond /=; apply: eq_bigr => S _.
rewrite (eq_bigr (fun i => if i \in S then (nth 0%N Hs i)%:R%:P * 'X else 1)); last first.
  by move=> i _; rewrite ffunE -mul_polyC.
rewrite -big_mkcond big_split /= prodr_const -rmorph_prod coefCM coefXn eq_sym natr_prod.
by case: eqP; rewrite ?mulr1 ?mulr0.
Qed.

End GeneratingPolynomial.
