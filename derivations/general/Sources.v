(* Sources that enter at any layer: position, biases, outputs of MLP layers held fixed. *)

From mathcomp Require Import all_ssreflect all_algebra.
From Circuits Require Import Heads Paths.

Set Implicit Arguments.
Unset Strict Implicit.
Unset Printing Implicit Defensive.

Import GRing.Theory.
Local Open Scope ring_scope.

Section Sources.

Variable R : comRingType.
Variables n d : nat.

Local Notation head := (head R n d).
Local Notation stream_type := 'M[R]_(n, d).

(* A layer: its heads, and the sources that enter with it. *)
Local Notation layer_type := (seq head * seq stream_type)%type.

Implicit Types (X S : stream_type) (layers : seq layer_type).

(* What a layer writes is added to what it reads: its heads, and its sources. *)
Definition source_layer (l : layer_type) X : stream_type := layer l.1 X + \sum_(S <- l.2) S.

Fixpoint source_stream layers X : stream_type :=
  if layers is l :: rest then source_stream rest (source_layer l X) else X.

(* The heads alone. *)
Definition heads_of layers : seq (seq head) := [seq l.1 | l <- layers].

(* A source that enters with a layer goes along the paths of the layers after it. *)
Fixpoint source_terms layers : seq (seq head * stream_type) :=
  if layers is l :: rest
  then [seq (p, S) | S <- l.2, p <- paths (heads_of rest)] ++ source_terms rest
  else [::].

(* All terms: those of X, through all layers, and those of the sources. *)
Definition terms layers X := [seq (p, X) | p <- paths (heads_of layers)] ++ source_terms layers.

(* What X gives and what the sources give are added. *)
Lemma sources_add_up layers X :
  source_stream layers X
  = stream (heads_of layers) X + \sum_(t <- source_terms layers) act (virtual_head t.1) t.2.
Proof.
elim: layers X => [|l rest IH] X /=; first by rewrite big_nil addr0.
(* The layers above are linear in the output of this one. *)
rewrite IH /source_layer stream_adds big_cat big_allpairs_dep /= addrA.
congr (_ + _ + _); rewrite stream_is_sum_over_paths exchange_big.
by apply: eq_bigr => p _; rewrite -act_sum.
Qed.

(* The stream is the sum of its terms:  sum over sources s and paths p after s of  A_p s W_p^T. *)
Theorem stream_with_sources layers X :
  source_stream layers X
  = \sum_(t <- terms layers X) (virtual_head t.1).1 *m t.2 *m (virtual_head t.1).2^T.
Proof. by rewrite sources_add_up big_cat big_map stream_is_sum_over_paths. Qed.

(* The scores are the double sum over the terms. *)
Theorem scores_with_sources layers X (W_QK : 'M[R]_d) :
  source_stream layers X *m W_QK *m (source_stream layers X)^T
  = \sum_(s <- terms layers X) \sum_(t <- terms layers X)
      (virtual_head s.1).1 *m s.2 *m (virtual_head s.1).2^T *m W_QK
        *m (virtual_head t.1).2 *m t.2^T *m (virtual_head t.1).1^T.
Proof.
rewrite stream_with_sources scores_of_sums.
apply: eq_bigr => s _; apply: eq_bigr => t _.
by rewrite !trmx_mul trmxK !mulmxA.
Qed.

(* Counting: a layer multiplies the number of terms by 1 + H and adds its sources,  c' = (1 + H) c + s. *)
Definition count_step c (l : layer_type) : nat := (1 + size l.1) * c + size l.2.

Theorem number_of_terms layers X : size (terms layers X) = foldl count_step 1%N layers.
Proof.
have folded : forall c, (c * size (paths (heads_of layers)) + size (source_terms layers))%N
                        = foldl count_step c layers.
  elim: layers {X} => [|l rest IH] c /=; first by rewrite muln1 addn0.
  rewrite -IH !size_cat !size_allpairs /count_step.
  by rewrite -mulSn mulnA addnA mulnDl [(c * _)%N]mulnC.
by rewrite -folded mul1n /terms size_cat size_map.
Qed.

End Sources.

Section Biases.

Variable R : comRingType.
Variables n d : nat.

Local Notation head := (head R n d).
Local Notation stream_type := 'M[R]_(n, d).

(* A value bias b_V stands inside its head; what it gives is  A S  with  S = 1 b_V^T W_O^T:
   it goes through the pattern of that head, once. *)
Theorem value_bias_is_source k (A : 'M[R]_n) (W_O : 'M[R]_(d, k)) (W_V : 'M[R]_(k, d))
    (b_V : 'cV[R]_k) (X : stream_type) :
  (A *m (X *m W_V^T + ones R n *m b_V^T)) *m W_O^T
  = act (A, W_O *m W_V) X + A *m (ones R n *m (W_O *m b_V)^T).
Proof. by rewrite mulmxDr mulmxDl head_in_three_steps trmx_mul !mulmxA. Qed.

(* A layer whose heads carry such a source S each, X |-> X + sum_h A_h (X W_h^T + S_h) ... *)
Definition biased_layer (heads : seq (head * stream_type)) (X : stream_type) : stream_type :=
  X + \sum_(b <- heads) (act b.1 X + b.1.1 *m b.2).

(* ... is a layer of the same heads with the sources A_h S_h. *)
Theorem biased_layer_has_sources heads X :
  biased_layer heads X
  = source_layer ([seq b.1 | b <- heads], [seq b.1.1 *m b.2 | b <- heads]) X.
Proof. by rewrite /source_layer /layer /biased_layer /= !big_map big_split /= addrA. Qed.

(* Where the rows of the patterns sum to one, a bias (the same row for each token) stays a bias along every path:
   it collapses into one row  (W_p b)^T,  and with the unembedding into one bias of the logits. *)
Theorem bias_collapses (p : seq head) (b : 'cV[R]_d) :
  all (fun h => rows_sum_to_one h.1) p ->
  (virtual_head p).1 *m (ones R n *m b^T) *m (virtual_head p).2^T
  = ones R n *m ((virtual_head p).2 *m b)^T.
Proof. by move=> /path_rows_sum_to_one /eqP p1; rewrite mulmxA p1 trmx_mul mulmxA. Qed.

(* Biases of queries and keys: the scores are those without, and three more kinds of terms. *)
Theorem query_and_key_biases k (W_Q W_K : 'M[R]_(k, d)) (b_Q b_K : 'cV[R]_k) (X : stream_type) :
  (X *m W_Q^T + ones R n *m b_Q^T) *m (X *m W_K^T + ones R n *m b_K^T)^T
  = X *m (W_Q^T *m W_K) *m X^T + X *m W_Q^T *m b_K *m (ones R n)^T
    + ones R n *m b_Q^T *m W_K *m X^T + ones R n *m b_Q^T *m b_K *m (ones R n)^T.
Proof.
rewrite linearD /= !trmx_mul !trmxK mulmxDl !mulmxDr !mulmxA.
by rewrite !addrA.
Qed.

End Biases.
